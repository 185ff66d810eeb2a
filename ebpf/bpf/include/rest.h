/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A signal that the agent cannot afford at present rests: its hooks begin nothing, and end what has begun, so that no level is left
 * standing. Loading the programs again would need privileges that the agent gave up.
 */
#ifndef TAILWATER_REST_H
#define TAILWATER_REST_H

volatile __u32 resting SEC(".data.rest") = 0;

#endif
