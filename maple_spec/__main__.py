"""`python -m maple_spec`, the same commands as `maple`."""

import sys

from maple_spec.server.cli import main

if __name__ == "__main__":
    sys.exit(main())
