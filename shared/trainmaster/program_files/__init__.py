"""What the files of a program show before a VM is paid for. Nothing of the program is run.

command ──► entry (file or module) ──► imports of the entry, and of what it imports
requirements.txt, runtime ──► pins that cannot be met, modules that nothing brings
"""
