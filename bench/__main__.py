"""Compare Recto with other systems: `uv run --group bench python -m bench`."""

from bench.peers.command import main

if __name__ == "__main__":
    main()
