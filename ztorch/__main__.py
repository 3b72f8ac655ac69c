"""python -m ztorch."""

from ztorch.cli import main

if __name__ == "__main__":
    main()
