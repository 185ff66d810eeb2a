/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the scheduler hooks write per window: the truth that ebpf/src/sched.rs mirrors. Every struct is integers without padding.
 */
#ifndef TAILWATER_SCHED_RECORDS_H
#define TAILWATER_SCHED_RECORDS_H

#include "window.h"

#include "histogram.h"
#define CPU_CULPRITS 8
#define IO_CULPRITS 4
#define BLOCKED_NOW 32
#define STOPPED_PROCESSES 33 /* slots; 0 is for those that found none */

enum task_edge {
	TASK_BUSY, /* on CPU */
	TASK_WAITING, /* runnable, not running */
	TASK_BLOCKED, /* asleep uninterruptibly, or with in_iowait */
	TASK_EDGES,
};

/* The tasks of one cgroup, on one CPU. */
struct task_record {
	__u64 window;
	struct edge_sum edges[TASK_EDGES];
	__s64 uncharged_ns; /* of TASK_BUSY, what the kernel did not charge to the tasks: see sched.bpf.c */
	__u64 wait_max_ns; /* waits that ended here */
	__u32 waiting_max; /* over all CPUs, as seen at this CPU's steps */
	__u32 blocked_max;
	__u32 switches;
	__u32 reserved;
	__u16 wait_hist[HIST_BUCKETS];
};

/* Space-saving: an entry that took another's place began with its `over_ns`, so the true value lies in [ns - over_ns, ns]. */
struct culprit {
	__u64 ns;
	__u64 over_ns;
	__u32 tgid;
	__u32 slot;
	char comm[16];
};

enum machine_edge {
	MACHINE_BUSY,
	MACHINE_IOWAIT, /* idle while a task that slept here waits for I/O */
	MACHINE_EDGES,
};

/* One CPU. */
struct machine_record {
	__u64 window;
	struct edge_sum edges[MACHINE_EDGES];
	__s64 uncharged_ns; /* of MACHINE_BUSY */
	__u64 stolen_ns; /* by the hypervisor, busy or idle */
	__u32 switches;
	__u32 missed; /* switches that no event told: some sandboxes hide their own threads */
	struct culprit cpu[CPU_CULPRITS];
	struct culprit io[IO_CULPRITS]; /* intervals asleep for I/O, at their end */
};

/* What a CPU runs now, for intervals that no switch has ended. `sequence` is odd while it changes. */
struct cpu_state {
	__u64 sequence;
	__u64 since_ns; /* CLOCK_MONOTONIC */
	__u64 steal_ns; /* the run queue's counter at `since_ns` */
	__u64 charged_ns; /* the task's sum_exec_runtime at `since_ns` */
	__u32 slot;
	__u32 tgid; /* 0: idle */
	__u32 running; /* 0 until the first switch */
	__u32 iowait;
	__u32 pid;
	__u32 untracked; /* tasks that came on the CPU and could have no storage: they count as nobody's */
	__u64 window; /* of the last event, and its start: spares a division */
	__u64 window_start_ns;
	__s64 clock_offset_ns; /* CLOCK_MONOTONIC minus the run queue's clock */
	__u64 clock_checked_ns; /* the run queue's clock when that was measured */
};

/* A task that is asleep for I/O now; tgid 0: free. */
struct blocked_now {
	__u64 since_ns;
	__u32 slot;
	__u32 tgid;
	char comm[16];
};

/* The stopped threads of one process: by a signal (SIGSTOP, SIGTSTP and their kin) or by a tracer. */
struct stopped_record {
	__u64 window;
	struct edge_sum edges[1];
	__u32 stopped_max; /* over all CPUs */
	__u32 reserved;
};

/* A process that has, or lately had, stopped threads. */
struct stopped_process {
	__u64 process; /* slot of its cgroup << 32 | tgid; 0: free; all ones: user space is about to free it */
	__s32 stopped; /* threads, now */
	__u32 reserved;
};
#endif
