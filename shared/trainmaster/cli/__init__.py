"""The command line: `trainmaster`.

There is one module or package per command; most of the logic is in the other packages of
`trainmaster`.
"""
