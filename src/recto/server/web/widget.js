// The search and the related passages of a book, in any page.
