"""Another application, which shares its host with an application server: each request computes a report for some milliseconds of
CPU, from numbers that it makes itself."""


def application(environ, start_response):
    totals = {}
    number = 1
    for _ in range(14_000):
        number = (number * 1103515245 + 12345) % 2147483648
        totals[number % 97] = totals.get(number % 97, 0) + number
    page = "".join(f"{key} {total}\n" for key, total in sorted(totals.items())).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(page)))])
    return [page]
