"""`python -m services.extraction`"""

from services.extraction.app import Extraction
from services.extraction.settings import ExtractionSettings
from shared.settings import load
from shared.web import configure, serve


def main() -> None:
    settings = load(ExtractionSettings, "services.extraction")
    configure("extraction", settings)
    serve(Extraction(settings).app(), settings)


if __name__ == "__main__":
    main()
