/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel types that the programs read, and nothing else of them. Owns the fields of tasks, cgroups, run queues, block requests
 * and what BPF itself needs; socket types are in include/net_types.h. Knows no signal.
 *
 * Kept by hand instead of a generated vmlinux.h: every struct lists the fields in use only, and `preserve_access_index`
 * makes the loader relocate each access by name to the offset of the running kernel, so neither order, padding nor
 * architecture matter here. A field that a kernel lacks is guarded by bpf_core_field_exists where it is used. Each type
 * names the kernel header that defines it (looked up in 5.15 to 6.18).
 */
#ifndef TAILWATER_KERNEL_H
#define TAILWATER_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* include/uapi/linux/bpf.h: part of the kernel's ABI, the numbers never change. */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};
enum {
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
	BPF_F_USER_STACK = 1U << 8, /* of bpf_get_stack */
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0,
	BPF_SK_STORAGE_GET_F_CREATE = 1U << 0,
};
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

struct pt_regs;

/* include/linux/bpf.h, kernel/bpf/task_iter.c; what an iterator is given is words of 64 bits in a fixed order (__bpf_md_ptr), and needs no relocation */
struct seq_file;
struct task_struct;
struct bpf_iter_meta {
	struct seq_file *seq;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task; /* NULL after the last */
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* include/linux/types.h */
typedef struct {
	int counter;
} atomic_t;

/* include/linux/kernfs.h; `id` has been a plain u64 since 5.5 */
struct kernfs_node {
	__u64 id;
};

/* include/linux/cgroup-defs.h */
struct cgroup;
struct cgroup_subsys_state {
	struct cgroup *cgroup;
};
struct cgroup_root {
	int hierarchy_id; /* 0: the unified one; /proc/cgroups names the others */
};
struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
};
struct css_set {
	struct cgroup_subsys_state *subsys[1]; /* longer; the index is a relocated enum value */
	struct cgroup *dfl_cgrp;
};

/* kernel/sched/sched.h */
struct rq {
	__u64 clock; /* sched_clock at the last update_rq_clock(), the first thing that __schedule() and a wakeup do */
	atomic_t nr_iowait;
	__u64 prev_steal_time_rq; /* with CONFIG_PARAVIRT_TIME_ACCOUNTING */
};
struct cfs_rq {
	struct rq *rq; /* with CONFIG_FAIR_GROUP_SCHED */
};

/* include/linux/sched.h */
struct sched_entity {
	__u64 sum_exec_runtime; /* what cpuacct and cpu.stat add up, without stolen time */
	struct cfs_rq *cfs_rq;
};
struct task_struct {
	unsigned int __state; /* `state` before 5.14, below the floor of 5.15 */
	unsigned int flags;
	unsigned int on_cpu; /* an int, since 7.2 a u8: a loader narrows a load only where both are unsigned */
	int pid;
	int tgid;
	unsigned in_iowait : 1;
	struct sched_entity se;
	struct task_struct *group_leader;
	struct css_set *cgroups;
	char comm[16];
};

/* include/linux/blk_types.h, block/blk-cgroup.h */
struct blkcg {
	struct cgroup_subsys_state css;
};
struct blkcg_gq {
	struct blkcg *blkcg;
};
struct bio {
	struct blkcg_gq *bi_blkg; /* with CONFIG_BLK_CGROUP */
};

/* include/linux/blkdev.h, include/linux/blk-mq.h; request_queue.disk since 5.15 (d152c682f03c) */
struct gendisk {
	int major;
	int first_minor;
};
struct request_queue {
	struct gendisk *disk;
};
struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	struct bio *bio;
};

#pragma clang attribute pop

/* include/linux/blk_types.h: bits move between kernels, so always taken by bpf_core_enum_value */
enum req_flag_bits {
	__REQ_FUA = 17,
	__REQ_PREFLUSH = 18,
};
#define REQ_OP_MASK 255
#define REQ_OP_FLUSH 2

/* include/linux/cgroup_subsys.h: numbered by the kernel's configuration, so always taken by bpf_core_enum_value */
enum cgroup_subsys_id {
	cpu_cgrp_id = 1,
	io_cgrp_id = 3,
	memory_cgrp_id = 4,
};

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000
#define TASK_RUNNING 0
#define TASK_UNINTERRUPTIBLE 2
#define __TASK_STOPPED 4 /* SIGSTOP and its kin, do_signal_stop() */
#define __TASK_TRACED 8 /* ptrace_stop() */
#define TASK_NOLOAD 0x0400

#endif
