"""The blocking application tier of the stack in Python: the page of a bulletin board, as in Story.java, from PostgreSQL, with a
counter of views in Redis. A worker is a process: it serves one request and waits for each answer."""
import os
from urllib.parse import parse_qs

import psycopg2
import redis

_database = None
_cache = None


def _connections():
    # After the fork: each worker has connections of its own, and keeps them.
    global _database, _cache
    if _database is None:
        _database = psycopg2.connect(
            host=os.environ["DB_HOST"], port=os.environ["DB_PORT"], user="postgres", dbname="bulletin")
        _database.autocommit = True
        _cache = redis.Redis(host=os.environ["CACHE_HOST"], port=int(os.environ["CACHE_PORT"]))
    return _database, _cache


def application(environ, start_response):
    parameters = parse_qs(environ.get("QUERY_STRING", ""))
    try:
        story = int(parameters["id"][0])
    except (KeyError, ValueError):
        start_response("400 Bad Request", [("Content-Length", "0")])
        return []
    database, cache = _connections()
    views = cache.incr(f"views:{story}")
    with database.cursor() as cursor:
        cursor.execute("SELECT title, body, author FROM stories WHERE id = %s", (story,))
        row = cursor.fetchone()
        if row is None:
            start_response("404 Not Found", [("Content-Length", "0")])
            return []
        title, body, author = row
        cursor.execute("SELECT nickname, rating FROM users WHERE id = %s", (author,))
        nickname, rating = cursor.fetchone()
        cursor.execute(
            "SELECT c.body, u.nickname FROM comments c JOIN users u ON u.id = c.author"
            " WHERE c.story = %s ORDER BY c.id LIMIT 10", (story,))
        comments = "".join(f"<p>{name}: {text}</p>" for text, name in cursor.fetchall())
        if "comment" in parameters:
            cursor.execute(
                "INSERT INTO comments (story, author, body) VALUES (%s, %s, 'me too')", (story, author))
    page = (f"<html><body><h1>{title}</h1><p>{body}</p><p>by {nickname} ({rating}), {views} views</p>"
            f"{comments}</body></html>\n").encode()
    start_response("200 OK", [("Content-Type", "text/html;charset=utf-8"), ("Content-Length", str(len(page)))])
    return [page]
