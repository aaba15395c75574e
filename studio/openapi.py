"""Writes the server's OpenAPI document, the studio's endpoints included, for the page's types."""

import json
import sys

from dtdr.serve.server.openapi import document
from dtdr.serve.server.routes import ENDPOINTS
from dtdr.serve.studio.routes import Studio

described = [item for item in (*ENDPOINTS, *Studio().endpoints) if item.is_described]
json.dump(document(described), sys.stdout, indent=1)
