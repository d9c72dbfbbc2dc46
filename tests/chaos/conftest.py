"""The long forms of the crash tests, with default settings: `make chaos`. `make test` has their short forms."""

import os

collect_ignore_glob = [] if os.environ.get("DULY_TEST_CHAOS") else ["test_*.py"]
