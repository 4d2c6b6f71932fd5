"""What a verification says to people and machines.

Everything here is a function of the rows of queries/verdict.sql and of the lists of this checkout. Nothing knows a
clock, a host or a path, so the same rows give the same bytes.

| module | gives |
|---|---|
| outputs | `write`: the files asked for, and the summary the others are made from |
| summary | counts, findings with their smallest examples, coverage, lists |
| text | what a person reads on a terminal |
| document, junit, sarif, annotations | JSON, JUnit, SARIF 2.1.0, GitHub annotations |
| rules | gates and the exit status |
| playbook | what a finding means and what to try |
"""
