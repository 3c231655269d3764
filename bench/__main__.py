"""Compare Recto with the systems that a user would otherwise take: `uv run --group bench python -m bench`."""

from bench.peers.command import main

if __name__ == "__main__":
    main()
