"""Check the collection: `python check_qdrant.py`."""

import json
import sys


def main() -> None:
    """Run the command; if Recto is not installed, print that as JSON."""
    try:
        from recto.cli.retrieval_test import check_main as run
    except ImportError as missing:
        error = {
            "kind": "configuration",
            "component": "CLI",
            "message": str(missing),
            "hint": "Run it with: uv run python check_qdrant.py",
        }
        sys.stdout.write(json.dumps({"schema_version": "1.0", "error": error}) + "\n")
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
