"""The recipe as frozen values.

In: a YAML or JSON file, or Python values. Out: a validated `Recipe` with absolute, expanded paths.
"""
