/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The socket signals with the streams of HTTP/2 counted by the headers of their frames: all of net.bpf.c, and two programs more. An object of its own, so that a
 * machine on which nobody wants it loads nothing of it, and what a kernel's verifier has to walk there stays what it was. Owns nothing else.
 */
#define STREAMS_ARE_COUNTED 1
#include "net.bpf.c"
