/* Stateful firewall for TCP and UDP over IPv4: packets of known connections pass if their TCP numbers are in the
 * window (van Rooij 2000), first packets if a rule accepts them. A connection takes one cache line for both
 * directions. */
#include "forward.h"

enum { REFUSED, NOT_TRACKED, OUT_OF_WINDOW, OUT_OF_STATE };
enum { NONE, SYN_SENT, SYN_BOTH, SYN_RECEIVED, ESTABLISHED, FIN_0, FIN_1, FIN_BOTH, CLOSED, ONE_WAY, BOTH_WAYS };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16, DEED = FIN | SYN | RST | ACK };

#define MARGIN 66000
#define UNSCALED 15
/* A connection is in its primary line or one of the next: there is always room. */
#define WINDOW 96
/* Lines searched for expired connections every millisecond. */
#define PART 512
/* Number of bursts after which the clock is read. */
#define LOOK 32

struct connection {
	uint64_t addresses;	/* both addresses in a canonical order, network byte order */
	uint32_t ports, protocol;
	uint32_t end[2], limit[2], widest[2];
	uint8_t scale[2], state, origin;
	uint32_t last_seen; /* time of the last packet in seconds; free if the state is NONE */
	uint32_t first;	/* of a SYN: the number that may be acknowledged, and the offered window */
	uint16_t window, pad[5];
} __rte_aligned(64);

_Static_assert(sizeof(struct connection) == 64, "one cache line");

struct track_rule {
	uint32_t src, src_mask, dst, dst_mask, drop;
};

struct conntrack {
	struct connection *lines;
	uint64_t n; /* primary lines */
	uint64_t seed[2];
	uint32_t capacity, len, timers[16], now, bursts;
	uint64_t sweep, next_sweep, per_ms, per_s;
	const struct track_rule *rules;
	uint32_t rules_n;
	uint64_t *counts; /* of the default, then of the rules */
};

struct segment {
	uint32_t seq, ack, len, window;
	uint8_t flags, scale;
};

static size_t bytes_of(const struct conntrack *t)
{
	return RTE_ALIGN((t->n + WINDOW) * sizeof(struct connection), 2 << 20);
}

struct conntrack *native_conntrack_new(uint32_t capacity, const struct track_rule *rules, uint32_t n, uint64_t cycles_per_second)
{
	struct conntrack *t = aligned_alloc(64, RTE_ALIGN(sizeof(*t), 64));
	memset(t, 0, sizeof(*t));
	t->capacity = capacity;
	t->n = capacity * 2ull;
	t->rules = rules;
	t->rules_n = n;
	t->counts = calloc(n + 1, sizeof(*t->counts));
	t->per_ms = cycles_per_second / 1000;
	t->per_s = cycles_per_second;
	t->seed[0] = 0x9e3779b97f4a7c15;
	t->seed[1] = 0xbf58476d1ce4e5b9;
	for (int i = 0; i < 16; i++)
		t->timers[i] = 240;
	t->timers[ESTABLISHED] = 7440;
	t->timers[CLOSED] = 60;
	t->timers[ONE_WAY] = 30;
	t->timers[BOTH_WAYS] = 300;
	size_t bytes = bytes_of(t);
	t->lines = table_new(bytes);
	return t;
}

void native_conntrack_free(struct conntrack *t)
{
	size_t bytes = bytes_of(t);
	table_free(t->lines, bytes);
	free(t->counts);
	free(t);
}

uint32_t native_conntrack_len(const struct conntrack *t)
{
	return t->len;
}

static __rte_always_inline int after(uint32_t a, uint32_t b)
{
	return (int32_t)(b - a) < 0;
}

static __rte_always_inline int in_window(struct connection *c, uint32_t side, const struct segment *s)
{
	uint32_t peer = side ^ 1, end = s->seq + s->len + (s->flags & 1) + (s->flags >> 1 & 1);
	uint32_t scale = c->scale[side] == UNSCALED || s->flags & SYN ? 0 : c->scale[side];
	uint32_t offered = s->window << scale, widest = c->widest[side];
	int has_ack = (s->flags & ACK) != 0;
	if (unlikely(after(s->seq, c->limit[side]) | after(c->end[side] - c->widest[peer] - 1, end) |
		     (has_ack & after(s->ack, c->end[peer] + 1)) |
		     (has_ack & after(c->end[peer] - RTE_MAX(widest, (uint32_t)MARGIN) - 1, s->ack))))
		return 0;
	if (after(end, c->end[side]))
		c->end[side] = end;
	if (has_ack && after(s->ack + offered, c->limit[peer]))
		c->limit[peer] = s->ack + offered;
	if (unlikely(offered > widest))
		c->widest[side] = offered;
	return 1;
}

static void offer(struct connection *c, uint32_t side, const struct segment *s)
{
	c->end[side] = s->seq + s->len + 1;
	c->scale[side] = s->scale;
	c->widest[side] = RTE_MAX(s->window, 1u);
}

static void begin(struct connection *c, uint32_t side, const struct segment *s)
{
	c->state = SYN_SENT;
	c->origin = side;
	offer(c, side, s);
	c->first = c->limit[side] = s->seq + 1;
	c->window = s->window;
	c->widest[side ^ 1] = 1;
}

/* Tracks a segment that is not an acknowledgement within an established connection; returns the drop reason, -1 to
 * accept it, or -2 if it opens the connection again. */
static __rte_noinline int deed(struct connection *c, uint32_t side, const struct segment *s)
{
	uint8_t d = s->flags & DEED, state = c->state;
	if (d != SYN && d != (SYN | ACK) && d != RST && d != (RST | ACK) && d != (FIN | ACK) && d != ACK)
		return OUT_OF_STATE;
	if (state == CLOSED && d == SYN)
		return -2;
	if (state == CLOSED && d == (SYN | ACK))
		return OUT_OF_STATE;
	if (state == SYN_SENT && side == c->origin) {
		if (d == SYN)
			begin(c, side, s);
		else if (d & RST)
			c->state = CLOSED;
		else
			return OUT_OF_STATE;
		return -1;
	}
	if (state == SYN_SENT) {
		int fits = !after(c->first, s->ack) && !after(s->ack, c->end[side ^ 1]);
		if (d == SYN || (d == (SYN | ACK) && fits)) {
			offer(c, side, s);
			if (c->scale[0] == UNSCALED || c->scale[1] == UNSCALED)
				c->scale[0] = c->scale[1] = 0;
			c->limit[side] = s->seq + 1 + c->window;
			c->limit[side ^ 1] = (d == SYN ? c->end[side ^ 1] : s->ack) + s->window;
			c->state = d == SYN ? SYN_BOTH : SYN_RECEIVED;
			return -1;
		}
		if (d == (RST | ACK) && fits) {
			c->state = CLOSED;
			return -1;
		}
		return d == ACK ? -1 : (d & ACK) && d != (FIN | ACK) ? OUT_OF_WINDOW : OUT_OF_STATE;
	}
	if (d == SYN)
		return state == SYN_BOTH && s->seq + s->len + 1 != c->end[side] ? OUT_OF_WINDOW : -1;
	uint32_t next = c->end[side];
	if (!in_window(c, side, s))
		return OUT_OF_WINDOW;
	if (d & RST) {
		if (s->seq == next || state < ESTABLISHED)
			c->state = CLOSED;
	} else if (d & SYN) {
		if (state == SYN_BOTH)
			c->state = ESTABLISHED;
	} else {
		if (state == SYN_RECEIVED && side == c->origin)
			state = ESTABLISHED;
		if (d & FIN)
			state = state == SYN_RECEIVED || state == ESTABLISHED ? FIN_0 + side :
				state == FIN_0 + (side ^ 1)		      ? FIN_BOTH :
										state;
		else if (state == FIN_BOTH && s->ack == c->end[side ^ 1])
			state = CLOSED;
		c->state = state;
	}
	return -1;
}

static __rte_noinline void age_entries(struct conntrack *t)
{
	for (uint32_t i = 0; i < PART; i++) {
		struct connection *c = &t->lines[t->sweep];
		t->sweep = t->sweep + 1 == t->n + WINDOW - 1 ? 0 : t->sweep + 1;
		if (c->state != NONE && t->now - c->last_seen >= t->timers[c->state] && (int32_t)(t->now - c->last_seen) > 0) {
			memset(c, 0, sizeof(*c));
			t->len--;
		}
	}
}

/* Returns 1 if the first matching rule, or the default, drops the packet. */
static int refused(struct conntrack *t, const uint8_t *d)
{
	uint32_t src, dst;
	memcpy(&src, d + 26, 4);
	memcpy(&dst, d + 30, 4);
	for (uint32_t i = 0; i < t->rules_n; i++) {
		const struct track_rule *r = &t->rules[i];
		if (((src ^ r->src) & r->src_mask) == 0 && ((dst ^ r->dst) & r->dst_mask) == 0) {
			t->counts[i + 1]++;
			return r->drop;
		}
	}
	t->counts[0]++;
	return 1;
}

static __rte_always_inline int same(const struct connection *c, __m128i key)
{
	__m128i x = _mm_xor_si128(_mm_load_si128((const __m128i *)c), key);
	return _mm_testz_si128(x, x);
}

/* Returns the window scale of a SYN. */
static uint8_t scale_of(const uint8_t *tcp, uint32_t len)
{
	for (uint32_t at = 20; at < len && tcp[at] != 0;) {
		if (tcp[at] == 1) {
			at++;
			continue;
		}
		if (at + 1 >= len || tcp[at + 1] < 2 || at + tcp[at + 1] > len)
			break;
		if (tcp[at] == 3 && tcp[at + 1] == 3)
			return RTE_MIN(tcp[at + 2], 14);
		at += tcp[at + 1];
	}
	return UNSCALED;
}

static __rte_always_inline struct segment segment_of(const uint8_t *d)
{
	uint32_t seq, ack;
	uint16_t window, total;
	memcpy(&total, d + 16, 2);
	memcpy(&seq, d + 38, 4);
	memcpy(&ack, d + 42, 4);
	memcpy(&window, d + 48, 2);
	return (struct segment){
		.seq = rte_be_to_cpu_32(seq),
		.ack = rte_be_to_cpu_32(ack),
		.len = rte_be_to_cpu_16(total) - 20u - (d[46] >> 4) * 4u,
		.window = rte_be_to_cpu_16(window),
		.flags = d[47],
		.scale = UNSCALED,
	};
}

/* Tracks a packet of a connection; returns the drop reason, -1 to accept it, or -2 if it opens the connection again. */
static __rte_always_inline int packet_of(struct conntrack *t, struct connection *c, uint32_t side, const uint8_t *d)
{
	/* an unnecessary store would cause a write-back of the line */
	if (unlikely(c->last_seen != t->now))
		c->last_seen = t->now;
	if (d[23] != 6) {
		if (unlikely(c->state == ONE_WAY && side != c->origin))
			c->state = BOTH_WAYS;
		return -1;
	}
	struct segment s = segment_of(d);
	if (likely((s.flags & DEED) == ACK && c->state == ESTABLISHED))
		return likely(in_window(c, side, &s)) ? -1 : OUT_OF_WINDOW;
	if (s.flags & SYN)
		s.scale = scale_of(d + 34, (d[46] >> 4) * 4);
	return deed(c, side, &s);
}

/* Processes a packet whose connection is not in its primary line, or that opens it again. */
static __rte_noinline int slow_path(struct conntrack *t, struct connection *primary, __m128i key, uint32_t side, const uint8_t *d)
{
	struct connection *c = NULL;
	for (struct connection *l = primary; l < primary + WINDOW; l++) {
		if (l->state == NONE) {
			c = c ? c : l;
		} else if (same(l, key)) {
			int reason = packet_of(t, l, side, d);
			if (reason != -2)
				return reason;
			c = l;
			break;
		}
	}
	struct segment s = {.flags = SYN};
	if (d[23] == 6) {
		s = segment_of(d);
		if ((s.flags & DEED) != SYN)
			return NOT_TRACKED;
		s.scale = scale_of(d + 34, (d[46] >> 4) * 4);
	}
	if (refused(t, d) || c == NULL || (c->state == NONE && t->len == t->capacity))
		return REFUSED;
	t->len += c->state == NONE;
	memset(c, 0, sizeof(*c));
	_mm_store_si128((__m128i *)c, key);
	c->last_seen = t->now;
	if (d[23] == 6) {
		begin(c, side, &s);
	} else {
		c->state = ONE_WAY;
		c->origin = side;
	}
	return -1;
}

static __rte_always_inline uint16_t conntrack(struct rte_mbuf **p, uint16_t n, struct counts *c, void *state)
{
	struct conntrack *t = state;
	struct connection *primaries[BURST];
	__m128i keys[BURST];
	uint64_t sides = 0, drops = 0, not_plain = 0;
	prefetch_first(p, n);
	for (uint16_t i = 0; i < n; i++) {
		prefetch(p, i, n);
		const uint8_t *d = rte_pktmbuf_mtod(p[i], const uint8_t *);
		uint64_t a, addresses;
		uint32_t b, ports, len = p[i]->data_len;
		memcpy(&a, d + 12, 8);
		memcpy(&b, d + 20, 4);
		memcpy(&addresses, d + 26, 8);
		memcpy(&ports, d + 34, 4);
		uint32_t total = rte_be_to_cpu_16((uint16_t)(a >> 32)), protocol = b >> 24, header = (d[46] >> 4) * 4;
		/* EtherType and version; flags and fragment offset. Buffers are longer than what is read of short frames. */
		int plain = ((a & 0xffffff) ^ 0x450008) == 0 && (b & 0xffbf) == 0 && total + 14 <= len &&
			    ((protocol == 17 && total >= 28) || (protocol == 6 && header >= 20 && header + 20 <= total));
		uint64_t turned = addresses << 32 | addresses >> 32;
		uint32_t turned_ports = ports << 16 | ports >> 16;
		int turn = turned < addresses || (turned == addresses && turned_ports < ports);
		addresses = RTE_MIN(addresses, turned);
		ports = turn ? turned_ports : ports;
		uint64_t rest = (uint64_t)protocol << 32 | ports;
		unsigned __int128 product = (unsigned __int128)(addresses ^ t->seed[0]) * (rest ^ t->seed[1]);
		uint64_t hash = (uint64_t)product ^ (uint64_t)(product >> 64);
		primaries[i] = t->lines + (((hash >> 32) * t->n) >> 32);
		rte_prefetch0(primaries[i]);
		keys[i] = _mm_set_epi64x(rest, addresses);
		sides |= (uint64_t)turn << i;
		not_plain |= (uint64_t)!plain << i;
	}
	if (unlikely(t->bursts++ % LOOK == 0)) {
		uint64_t cycles = rte_rdtsc();
		t->now = cycles / t->per_s;
		if (cycles >= t->next_sweep) {
			t->next_sweep = cycles + t->per_ms;
			age_entries(t);
		}
	}
	for (uint16_t i = 0; i < n; i++) {
		const uint8_t *d = rte_pktmbuf_mtod(p[i], const uint8_t *);
		int reason;
		/* fragments, options, VLAN tags, ICMP and IPv6 are not part of this comparison */
		if (unlikely(not_plain >> i & 1))
			reason = NOT_TRACKED;
		else if (likely(same(primaries[i], keys[i])) && likely(primaries[i]->state != CLOSED))
			reason = packet_of(t, primaries[i], sides >> i & 1, d);
		else
			reason = slow_path(t, primaries[i], keys[i], sides >> i & 1, d);
		if (unlikely(reason >= 0)) {
			c->dropped[reason]++;
			drops |= 1ull << i;
		}
	}
	return likely(drops == 0) ? n : free_dropped(p, n, drops);
}

NETWORK_FUNCTION_ON(conntrack, conntrack, FRESH_FLOW)
