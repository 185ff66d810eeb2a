/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the sampler writes for each moment at which a thread was on a CPU: the truth that ebpf/src/stacks.rs mirrors. Integers without padding.
 */
#ifndef TAILWATER_STACKS_RECORDS_H
#define TAILWATER_STACKS_RECORDS_H

/* From one sample of a CPU to the next at least: with the tick, some 50 a second. */
#define SAMPLED_NS 17000000
/* Callers that are followed by frame pointers. */
#define STACK_FRAMES 24
/* Of a thread's registers as struct pt_regs has them: 168 bytes on x86-64, 336 on 64-bit ARM. */
#define REGISTERS_BYTES 384
/* Processes whose threads are looked at together: more than user space takes for one server (PROCESSES_MAX of agent/src/sample/tasks.rs). */
#define LOOKED_AT 256
/* Of its stack, from the stack pointer on. */
#define STACK_BYTES 4096

/* A thread on a CPU. */
struct stack_sample {
	__u64 sequence; /* how many this CPU had written with it; 0 while it is written */
	__u64 mono_ns;
	__u64 cgroup_id;
	__u32 tgid;
	__u32 tid;
	char comm[16];
	__u32 frames; /* of `calls` */
	__u32 copied; /* bytes of `stack_copy.stack`; 0: there is no copy */
	__u64 calls[STACK_FRAMES]; /* where it was in user space, then who called, by frame pointers */
};

/* Its registers and the top of its stack, by which callers are found where a program keeps no frame pointers. */
struct stack_copy {
	__u64 registers[REGISTERS_BYTES / 8];
	__u64 stack[STACK_BYTES / 8];
};

/* A thread that is off the CPU, with its registers in user space. */
struct waiting_thread {
	__u32 tgid;
	__u32 tid;
	__u64 registers[REGISTERS_BYTES / 8];
};
#endif
