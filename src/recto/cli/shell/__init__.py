"""The interactive shell: its commands, its session, and the terminal."""
