"""Does a device compute what a model means, layer by layer?"""
