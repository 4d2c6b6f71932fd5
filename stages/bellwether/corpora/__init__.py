"""Importers, one module per dataset. Each yields cases in a fixed order, with what it left out and why.

An importer reads data only: rows of a pinned archive, or the hand-written lines in Git. It runs no code of a dataset.
"""
