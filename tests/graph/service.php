<?php
// The configurable service of a service graph in PHP, behind nginx and php-fpm, whose workers are processes that serve one request each: what
// `graphnode` (tests/src/graph/node) is with threads, but that it takes no orders, and that of a request nothing is left for the next one, no connection
// either. Its part is in the file that PART names (tests/src/graph/part.rs).
declare(strict_types=1);

// Of every answer, as that of the other runtimes.
const BODY = '{"served":true,"note":"a body of about two hundred bytes, as small answers of services have it, '
    . 'so that an answer is one segment and no more than that"}' . "\n";
const REQUEST = "GET /call HTTP/1.1\r\nHost: graph\r\nConnection: close\r\n\r\n";

// CPU that this process has used, µs.
function used(): int
{
    $of = getrusage();
    $seconds = $of['ru_utime.tv_sec'] + $of['ru_stime.tv_sec'];
    return 1_000_000 * $seconds + $of['ru_utime.tv_usec'] + $of['ru_stime.tv_usec'];
}

function spin(int $micros): void
{
    $end = used() + $micros;
    while (used() < $end) {
    }
}

// Which requests make a call is left to chance, as none of them knows of those before it.
function is_made(array $call): bool
{
    return random_int(1, 100) <= $call['share_percent'];
}

function is_answered(array $call): bool
{
    $end = hrtime(true) + 1_000_000 * $call['timeout_ms'];
    $stream = @stream_socket_client("tcp://{$call['to']}", $code, $why, $call['timeout_ms'] / 1000);
    if ($stream === false) {
        return false;
    }
    @fwrite($stream, REQUEST);
    $answer = '';
    // The answer is over when the connection is.
    while (($left = intdiv($end - hrtime(true), 1000)) > 0) {
        stream_set_timeout($stream, intdiv($left, 1_000_000), $left % 1_000_000);
        $piece = @fread($stream, 8192);
        if ($piece === '' || $piece === false) {
            break;
        }
        $answer .= $piece;
    }
    return hrtime(true) < $end && str_starts_with($answer, 'HTTP/1.1 200 ');
}

function is_served(array $part): bool
{
    if ($part['allocate_bytes'] > 0) {
        $allocated = str_repeat("\1", $part['allocate_bytes']);
        unset($allocated);
    }
    spin($part['cpu_us']);
    if ($part['sleep_us'] > 0) {
        usleep($part['sleep_us']);
    }
    foreach ($part['calls'] as $call) {
        if (is_made($call) && !is_answered($call)) {
            return false;
        }
    }
    return true;
}

$served = is_served(json_decode(file_get_contents($_SERVER['PART']), true));
http_response_code($served ? 200 : 503);
header('Content-Type: application/json');
header('Content-Length: ' . strlen(BODY));
echo BODY;
