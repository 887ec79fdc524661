"""`python -m bandtheory` is the command `bandtheory`."""

import sys

from bandtheory.cli import main

if __name__ == "__main__":
    sys.exit(main())
