"""The one number of a prediction that an explanation is about."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sirgcn.model.fitted import Model
from sirgcn.model.predictor import temperatures_of
from sirgcn.strict import check_name


@dataclass(frozen=True, eq=False)
class Score:
    r"""What is explained: the log-odds of a class or label, or a number in the units of its target.

    Log-odds do not saturate: that a probability falls from 0.9999 to 0.999 can be seen. They are
    :math:`\log p / (1 - p)`.

    Args:
        model: the model.
        place: the number of the class, label or target.
        name: its name.
    """

    model: Model
    place: int
    name: str

    def __call__(self, outputs: Tensor) -> Tensor:
        """The score of every row of outputs, `[rows]`."""
        if self.model.problem.sort == "numbers":
            return outputs[:, self.place]
        logits = outputs / outputs.new_tensor(temperatures_of(self.model))
        own = logits[:, self.place]
        if self.model.problem.sort == "labels":
            return own
        is_other = torch.arange(logits.size(1)) != self.place
        return own - logits[:, is_other].logsumexp(1)

    def shown(self, scores: Tensor) -> Tensor:
        """What a reader is shown for scores: probabilities, or the numbers themselves."""
        return scores if self.model.problem.sort == "numbers" else scores.sigmoid()

    @property
    def unit(self) -> str:
        """What an effect is measured in."""
        return self.name if self.model.problem.sort == "numbers" else "log-odds"


def score_of(model: Model, outputs: Tensor, target: str | None) -> Score:
    """What is explained of a row.

    Args:
        model: the model.
        outputs: the outputs of the row, `[1, outputs]`.
        target: the name of a class, label or target; None: the most probable class, or the first target.
    """
    problem = model.problem
    names = problem.classes if problem.sort == "classes" else problem.targets
    if target is not None:
        return Score(model, names.index(check_name("target", target, names, exact=True)), target)
    place = int(outputs[0].argmax()) if problem.sort == "classes" else 0
    return Score(model, place, names[place])
