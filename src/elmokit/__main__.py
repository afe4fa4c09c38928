"""``python -m elmokit`` is ``elmokit``."""

from elmokit.cli.main import main

if __name__ == "__main__":
    main()
