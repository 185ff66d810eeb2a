/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The buckets of every histogram of times: log2 of microseconds. The last one is open. */
#ifndef TAILWATER_HISTOGRAM_H
#define TAILWATER_HISTOGRAM_H

#define HIST_BUCKETS 20 /* of waits: open from 524 ms on */
#define RESPONSE_BUCKETS 24 /* open from 8.4 s on: beyond a dropped SYN's tries after 1, 3 and 7 s */

/* Of 1 and more, below 2^32; 0 of 0. */
static __always_inline __u32 log2_of(__u64 value)
{
	__u32 log2 = 0;

	if (value >> 16) {
		value >>= 16;
		log2 += 16;
	}
	if (value >> 8) {
		value >>= 8;
		log2 += 8;
	}
	if (value >> 4) {
		value >>= 4;
		log2 += 4;
	}
	if (value >> 2) {
		value >>= 2;
		log2 += 2;
	}
	if (value >> 1)
		log2 += 1;
	return log2;
}

static __always_inline __u32 log2_us(__u64 ns, __u32 buckets)
{
	/* ns / 1000 by multiplication, exact to a millionth; the product fits up to 2^37 ns, beyond the last bucket. */
	__u64 us = ns >> 37 ? 1ULL << buckets : (ns * 67109) >> 26;
	__u32 bucket = log2_of(us);

	return bucket < buckets ? bucket : buckets - 1;
}

#endif
