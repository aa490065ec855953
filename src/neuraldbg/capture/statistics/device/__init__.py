"""The same on a GPU: launches that are not waited for, and numbers that come over late."""
