class HTTPException(Exception):
    status_code: int
