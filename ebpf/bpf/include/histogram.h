/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The buckets of every histogram of times: log2 of microseconds. */
#ifndef TAILWATER_HISTOGRAM_H
#define TAILWATER_HISTOGRAM_H

#define HIST_BUCKETS 20 /* the last is open */

static __always_inline __u32 log2_us(__u64 ns)
{
	/* ns / 1000 by multiplication, exact to a millionth; the product fits up to 2^37 ns, beyond the last bucket. */
	__u64 us = ns >> 37 ? 1ULL << HIST_BUCKETS : (ns * 67109) >> 26;
	__u32 bucket = 0;

	if (us >> 16) {
		us >>= 16;
		bucket += 16;
	}
	if (us >> 8) {
		us >>= 8;
		bucket += 8;
	}
	if (us >> 4) {
		us >>= 4;
		bucket += 4;
	}
	if (us >> 2) {
		us >>= 2;
		bucket += 2;
	}
	if (us >> 1)
		bucket += 1;
	return bucket < HIST_BUCKETS ? bucket : HIST_BUCKETS - 1;
}

#endif
