"""A search for settings: suggestions, the trials of an experiment, and the rounds in which they are made.

- `suggesting` suggests settings from those that were tried. It knows no experiment.
- `spaces` says what a row of an experiment searches, and checks it.
- `trials` makes a run of a trial, reads the records of trials, and chooses the winner.
- `bases` completes experiments whose rows change a winner.
- `rounds` makes the trials of all rows, round by round.
"""
