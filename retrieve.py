"""Query the book: `uv run python retrieve.py "What is ROS 2?"`."""

from recto.cli.retrieve import main

if __name__ == "__main__":
    main()
