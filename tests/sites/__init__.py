"""Tests of the widget on real sites: Docusaurus and MkDocs Material build them, and a browser reads them."""
