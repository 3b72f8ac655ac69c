"""A few poems in the public domain, for small models of characters.

Each character, in lower case, becomes its position in ALPHABET.
"""

from __future__ import annotations

import numpy as np

from ztorch.data.registry import Pair, Split, data_set

ALPHABET = "\n !',-.:;?abcdefghijklmnopqrstuvwxyz"
LENGTH = 32  # characters in a row

# Shakespeare: sonnets 18, 29, 73, 116, 130.
_SHAKESPEARE = """\
Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date:
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance, or nature's changing course untrimm'd;
But thy eternal summer shall not fade,
Nor lose possession of that fair thou owest;
Nor shall Death brag thou wander'st in his shade,
When in eternal lines to time thou growest:
So long as men can breathe, or eyes can see,
So long lives this, and this gives life to thee.

When, in disgrace with fortune and men's eyes,
I all alone beweep my outcast state,
And trouble deaf heaven with my bootless cries,
And look upon myself and curse my fate,
Wishing me like to one more rich in hope,
Featured like him, like him with friends possess'd,
Desiring this man's art and that man's scope,
With what I most enjoy contented least;
Yet in these thoughts myself almost despising,
Haply I think on thee, and then my state,
Like to the lark at break of day arising
From sullen earth, sings hymns at heaven's gate;
For thy sweet love remember'd such wealth brings
That then I scorn to change my state with kings.

That time of year thou mayst in me behold
When yellow leaves, or none, or few, do hang
Upon those boughs which shake against the cold,
Bare ruin'd choirs, where late the sweet birds sang.
In me thou see'st the twilight of such day
As after sunset fadeth in the west,
Which by and by black night doth take away,
Death's second self, that seals up all in rest.
In me thou see'st the glowing of such fire
That on the ashes of his youth doth lie,
As the death-bed whereon it must expire,
Consumed with that which it was nourish'd by.
This thou perceivest, which makes thy love more strong,
To love that well which thou must leave ere long.

Let me not to the marriage of true minds
Admit impediments. Love is not love
Which alters when it alteration finds,
Or bends with the remover to remove:
O no! it is an ever-fixed mark
That looks on tempests and is never shaken;
It is the star to every wandering bark,
Whose worth's unknown, although his height be taken.
Love's not Time's fool, though rosy lips and cheeks
Within his bending sickle's compass come:
Love alters not with his brief hours and weeks,
But bears it out even to the edge of doom.
If this be error and upon me proved,
I never writ, nor no man ever loved.

My mistress' eyes are nothing like the sun;
Coral is far more red than her lips' red;
If snow be white, why then her breasts are dun;
If hairs be wires, black wires grow on her head.
I have seen roses damask'd, red and white,
But no such roses see I in her cheeks;
And in some perfumes is there more delight
Than in the breath that from my mistress reeks.
I love to hear her speak, yet well I know
That music hath a far more pleasing sound;
I grant I never saw a goddess go;
My mistress, when she walks, treads on the ground:
And yet, by heaven, I think my love as rare
As any she belied with false compare.
"""

# Edgar Allan Poe: The Raven, the beginning.
_POE = """\
Once upon a midnight dreary, while I pondered, weak and weary,
Over many a quaint and curious volume of forgotten lore,
While I nodded, nearly napping, suddenly there came a tapping,
As of some one gently rapping, rapping at my chamber door.
'Tis some visitor, I muttered, tapping at my chamber door;
Only this and nothing more.

Ah, distinctly I remember it was in the bleak December,
And each separate dying ember wrought its ghost upon the floor.
Eagerly I wished the morrow; vainly I had sought to borrow
From my books surcease of sorrow, sorrow for the lost Lenore,
For the rare and radiant maiden whom the angels name Lenore,
Nameless here for evermore.

And the silken, sad, uncertain rustling of each purple curtain
Thrilled me, filled me with fantastic terrors never felt before;
So that now, to still the beating of my heart, I stood repeating
'Tis some visitor entreating entrance at my chamber door,
Some late visitor entreating entrance at my chamber door;
This it is and nothing more.

Presently my soul grew stronger; hesitating then no longer,
Sir, said I, or Madam, truly your forgiveness I implore;
But the fact is I was napping, and so gently you came rapping,
And so faintly you came tapping, tapping at my chamber door,
That I scarce was sure I heard you; here I opened wide the door;
Darkness there and nothing more.

Deep into that darkness peering, long I stood there wondering, fearing,
Doubting, dreaming dreams no mortal ever dared to dream before;
But the silence was unbroken, and the stillness gave no token,
And the only word there spoken was the whispered word, Lenore?
This I whispered, and an echo murmured back the word, Lenore!
Merely this and nothing more.

Back into the chamber turning, all my soul within me burning,
Soon again I heard a tapping somewhat louder than before.
Surely, said I, surely that is something at my window lattice;
Let me see, then, what thereat is, and this mystery explore;
Let my heart be still a moment and this mystery explore;
'Tis the wind and nothing more!

Open here I flung the shutter, when, with many a flirt and flutter,
In there stepped a stately Raven of the saintly days of yore.
Not the least obeisance made he; not a minute stopped or stayed he;
But, with mien of lord or lady, perched above my chamber door,
Perched upon a bust of Pallas just above my chamber door,
Perched, and sat, and nothing more.
"""

# Lewis Carroll: The Walrus and the Carpenter, the beginning, and Jabberwocky.
_CARROLL = """\
The sun was shining on the sea,
Shining with all his might:
He did his very best to make
The billows smooth and bright,
And this was odd, because it was
The middle of the night.

The moon was shining sulkily,
Because she thought the sun
Had got no business to be there
After the day was done.
It's very rude of him, she said,
To come and spoil the fun!

The sea was wet as wet could be,
The sands were dry as dry.
You could not see a cloud, because
No cloud was in the sky:
No birds were flying overhead,
There were no birds to fly.

The Walrus and the Carpenter
Were walking close at hand;
They wept like anything to see
Such quantities of sand:
If this were only cleared away,
They said, it would be grand!

If seven maids with seven mops
Swept it for half a year,
Do you suppose, the Walrus said,
That they could get it clear?
I doubt it, said the Carpenter,
And shed a bitter tear.

O Oysters, come and walk with us!
The Walrus did beseech.
A pleasant walk, a pleasant talk,
Along the briny beach:
We cannot do with more than four,
To give a hand to each.

The eldest Oyster looked at him,
But never a word he said:
The eldest Oyster winked his eye,
And shook his heavy head,
Meaning to say he did not choose
To leave the oyster-bed.

'Twas brillig, and the slithy toves
Did gyre and gimble in the wabe;
All mimsy were the borogoves,
And the mome raths outgrabe.

Beware the Jabberwock, my son!
The jaws that bite, the claws that catch!
Beware the Jubjub bird, and shun
The frumious Bandersnatch!

He took his vorpal sword in hand:
Long time the manxome foe he sought,
So rested he by the Tumtum tree,
And stood awhile in thought.

And as in uffish thought he stood,
The Jabberwock, with eyes of flame,
Came whiffling through the tulgey wood,
And burbled as it came!

One, two! One, two! And through and through
The vorpal blade went snicker-snack!
He left it dead, and with its head
He went galumphing back.
"""

POETS = {"Shakespeare": _SHAKESPEARE, "Poe": _POE, "Carroll": _CARROLL}


def encode(text: str) -> np.ndarray:
    """The numbers of a text; characters that are not in the alphabet are dropped.

    >>> decode(encode("Hello!")), encode("ab").tolist()
    ('hello!', [10, 11])
    """
    place = {letter: k for k, letter in enumerate(ALPHABET)}
    return np.array([place[c] for c in text.lower() if c in place], np.int32)


def decode(numbers: np.ndarray) -> str:
    """The text of numbers."""
    return "".join(ALPHABET[k] for k in numbers)


def _windows(text: str, length: int) -> tuple[np.ndarray, np.ndarray]:
    """All passages of a length: for training, and, from the last tenth of the text, for testing."""
    letters = encode(text)
    at = len(letters) * 9 // 10  # no passage is in both
    train, test = (np.lib.stride_tricks.sliding_window_view(part, length)
                   for part in (letters[:at], letters[at:]))
    return train, test[::4]


@data_set("verse")
def load_verse(length: int = LENGTH) -> Split:
    """Passages of poems as rows of `length` numbers, and the character that follows each one."""
    passages = [_windows(text, length + 1) for text in POETS.values()]

    def pair(rows: list[np.ndarray]) -> Pair:
        joined = np.concatenate(rows)
        return joined[:, :-1].copy(), joined[:, 1:].copy()

    return pair([train for train, _ in passages]), pair([test for _, test in passages])


@data_set("poets", POETS)
def load_poets(length: int = LENGTH) -> Split:
    """Passages of poems, and their poets: 0 Shakespeare, 1 Poe, 2 Carroll."""
    passages = [_windows(text, length) for text in POETS.values()]

    def pair(rows: list[np.ndarray]) -> Pair:
        poets = np.repeat(np.arange(len(rows), dtype=np.int32), [len(r) for r in rows])
        return np.concatenate(rows), poets

    return pair([train for train, _ in passages]), pair([test for _, test in passages])
