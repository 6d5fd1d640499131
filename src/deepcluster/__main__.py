"""python -m deepcluster."""

import sys

from deepcluster.cli import main

if __name__ == "__main__":
    sys.exit(main())
