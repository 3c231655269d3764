"""The commands of `recto`; `recto.cli.main` lists them."""
