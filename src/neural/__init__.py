"""The `.neural` language: models that are described in a file.

Names are loaded when first used, so that importing this package imports neither torch nor lark.
"""
