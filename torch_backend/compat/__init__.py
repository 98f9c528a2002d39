"""What changes PyTorch or another library at run time, a file for each thing that is changed.

Each says what it changes and why, which versions need it, how that is found out, and when it may go.
"""
