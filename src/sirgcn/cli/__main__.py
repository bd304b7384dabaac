"""`python -m sirgcn.cli`."""

from sirgcn.cli import main

if __name__ == "__main__":
    main()
