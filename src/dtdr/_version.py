"""The version of dtdr, which packages, servers and the command line report."""

VERSION = "0.1.0"
