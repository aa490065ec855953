"""The language of `.neural` files.

`reader` makes a tree of a text, `formatter` a text of a tree. Their parts:

    grammar.lark       the grammar, for lark's LALR parser
    tree.py            the nodes
    tree_builder.py    what the parser recognises -> nodes
    syntax_words.py    an error of the parser -> words for a person
"""
