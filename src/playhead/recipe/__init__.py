"""The recipe as frozen values.

Comes in: a YAML or JSON file, or Python values. Goes out: a validated `Recipe` with absolute, expanded paths.
"""
