"""The interactive tester: questions typed line by line, with filters, selected text and the reasons behind an answer."""
