"""`python -m bellwether`: the command line."""

from bellwether.cli import cli

if __name__ == "__main__":
    cli(prog_name="bellwether")
