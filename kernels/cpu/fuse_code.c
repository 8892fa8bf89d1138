/* kernels/cpu/fuse_code.c -- translates a fused program into lists of row calls, and
** gives registers to its values. */
#include <stdlib.h>
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/fuse.h"
#include "kernels/cpu/reduce.h"

/* What the elements of a value are. */
enum { NUMBERS, CONDITIONS, FORMS };

typedef struct maker {
  mt_fuse_code *code;
  mt_steps *list;
  bool failed;
  int nregisters;   /* of the list, before they are shared */
  int *slot[FORMS]; /* of each node; -1: none yet */
  int *reg[FORMS];  /* of each node in this list; -1: none yet */
  int *fold;        /* of each reduction */
  int *uses;        /* of each node */
} maker;

static const mt_fuse_node *node_of(const maker *m, int i) {
  return &m->code->program->node[i];
}

/* ---- steps ---- */

static mt_step *add(maker *m, mt_step_kind kind) {
  static mt_step spare; /* written to after a failure, never read */
  mt_steps *const l = m->list;
  if (l->n == l->capacity) {
    const int capacity = l->capacity > 0 ? 2 * l->capacity : 16;
    mt_step *const more = realloc(l->step, (size_t)capacity * sizeof *more);
    if (!more) {
      m->failed = true;
      return &spare;
    }
    l->step = more;
    l->capacity = capacity;
  }
  mt_step *const s = &l->step[l->n++];
  memset(s, 0, sizeof *s);
  s->kind = (uint8_t)kind;
  s->direct = -1;
  return s;
}

static int width_of(const maker *m, int form) {
  return form == CONDITIONS ? 1 : m->code->width;
}

/* Is there a value of it for each row, at most? */
static bool is_slot(const maker *m, int i) {
  const mt_fuse_node *const v = node_of(m, i);
  if (v->kind == MT_FUSE_NUMBER) return true;
  return m->code->program->reduces ? v->space != MT_FUSE_FULL : false;
}

static int form_of(const maker *m, int i) {
  return node_of(m, i)->boolean ? CONDITIONS : NUMBERS;
}

/* ---- rows ---- */

static mt_row op_row(const maker *m, const mt_fuse_node *v, bool conditions) {
  if (conditions) return (*MT_ISA_PICK(mt_rows_b8))[v->op];
  return mt_cpu_row_of(m->code->compute, v->op, v->number[0]);
}

static mt_row where_row(int width) {
  return (*MT_ISA_PICK(mt_where_rows))[width == 1 ? 0 : width == 4 ? 2 : 3];
}

static mt_row convert_row(const maker *m, int to) {
  const mt_dtype compute = m->code->compute;
  return to == CONDITIONS ? (*MT_ISA_PICK(mt_convert_rows))[compute][MT_BOOL]
                          : (*MT_ISA_PICK(mt_convert_rows))[MT_BOOL][compute];
}

/* Does the op take conditions as they are? Then its row of bytes serves. */
static bool takes_conditions(const maker *m, const mt_fuse_node *v) {
  if (v->kind != MT_FUSE_OP || !v->boolean) return false;
  for (int a = 0; a < v->nargs; a++) {
    if (!node_of(m, v->arg[a])->boolean) return false;
  }
  return (*MT_ISA_PICK(mt_rows_b8))[v->op] != NULL;
}

/* ---- slots ---- */

static int new_slot(maker *m) { return m->code->nslots++; }

static int slot_of(maker *m, int i, int form) {
  int *const s = &m->slot[form][i];
  if (*s >= 0) return *s;
  const mt_fuse_node *const v = node_of(m, i);
  if (v->kind == MT_FUSE_NUMBER) {
    mt_fuse_code *const c = m->code; /* conditions are never asked of numbers */
    c->number[c->nnumbers] = (mt_number_slot){ *s = new_slot(m), v->number[0]};
    c->nnumbers++;
    return *s;
  }
  const int from = slot_of(m, i, !form);
  mt_step *const step = add(m, MT_SLOT_ROW);
  step->row = convert_row(m, form);
  step->nargs = 1, step->arg[0] = from;
  step->width = (uint8_t)width_of(m, form);
  return step->to = *s = new_slot(m);
}

/* ---- registers ---- */

/* Numbers are spread once for all blocks: their registers are -2, -3, ..., and the last
** ones in the end. */
static int number_register(maker *m, int i) {
  mt_fuse_code *const c = m->code;
  const int slot = slot_of(m, i, NUMBERS);
  int k = 0;
  while (k < c->nfilled && c->filled[k] != slot) k++;
  if (k == c->nfilled) c->filled[c->nfilled++] = slot;
  return -2 - k;
}

static int register_of(maker *m, int i, int form) {
  int *const r = &m->reg[form][i];
  if (*r >= 0) return *r;
  if (node_of(m, i)->kind == MT_FUSE_NUMBER) return number_register(m, i);
  if (is_slot(m, i)) {
    const int slot = slot_of(m, i, form);
    mt_step *const step = add(m, MT_STEP_SPREAD);
    step->arg[0] = slot;
    step->width = (uint8_t)width_of(m, form);
    return step->to = *r = m->nregisters++;
  }
  const int from = register_of(m, i, !form);
  mt_step *const step = add(m, MT_STEP_ROW);
  step->row = convert_row(m, form);
  step->nargs = 1, step->arg[0] = from;
  step->width = (uint8_t)width_of(m, form);
  return step->to = *r = m->nregisters++;
}

/* ---- nodes ---- */

static void attributes(mt_step *s, const mt_fuse_node *v) {
  for (int k = 0; k < 2; k++) {
    s->attr[k].n = 1;
    s->attr[k].f = v->number[k];
  }
}

/* An op or a choice, of slots or of registers. */
static void compute(maker *m, int i, bool slots) {
  const mt_fuse_node *const v = node_of(m, i);
  const bool conditions = takes_conditions(m, v);
  const int form = form_of(m, i);
  int arg[3] = {0};
  for (int a = 0; a < v->nargs; a++) {
    int wanted = conditions ? CONDITIONS : NUMBERS;
    if (v->kind == MT_FUSE_WHERE) wanted = a == 0 ? CONDITIONS : form;
    arg[a] = slots ? slot_of(m, v->arg[a], wanted) : register_of(m, v->arg[a], wanted);
  }
  mt_step *const s = add(m, slots ? MT_SLOT_ROW : MT_STEP_ROW);
  s->nargs = v->nargs;
  memcpy(s->arg, arg, sizeof arg);
  s->width = (uint8_t)width_of(m, form);
  s->row = v->kind == MT_FUSE_WHERE ? where_row(width_of(m, form))
                                    : op_row(m, v, conditions);
  if (!s->row) m->failed = true;
  attributes(s, v);
  s->to = slots ? new_slot(m) : m->nregisters++;
  (slots ? m->slot : m->reg)[form][i] = s->to;
}

static void make_slot(maker *m, int i) {
  const mt_fuse_node *const v = node_of(m, i);
  if (v->kind == MT_FUSE_NUMBER) return; /* when it is asked for */
  if (v->kind == MT_FUSE_OP || v->kind == MT_FUSE_WHERE) {
    compute(m, i, true);
    return;
  }
  mt_step *const s = add(m, v->kind == MT_FUSE_INPUT    ? MT_SLOT_LOAD
                            : v->kind == MT_FUSE_LENGTH ? MT_SLOT_LENGTH
                                                        : MT_SLOT_FOLDED);
  s->index = v->kind == MT_FUSE_INPUT ? v->index : m->fold[i];
  s->width = (uint8_t)m->code->width;
  m->slot[NUMBERS][i] = s->to = new_slot(m);
}

static void make_register(maker *m, int i) {
  const mt_fuse_node *const v = node_of(m, i);
  if (v->kind != MT_FUSE_INPUT) {
    compute(m, i, false);
    return;
  }
  mt_step *const s = add(m, MT_STEP_LOAD);
  s->index = v->index;
  s->width = (uint8_t)m->code->width;
  m->reg[NUMBERS][i] = s->to = m->nregisters++;
}

/* A square that only a sum needs is made by the fold, in its wider type. */
static bool is_folded(const maker *m, int i) {
  const mt_fuse_program *const p = m->code->program;
  const mt_fuse_node *const v = node_of(m, i);
  if (v->kind != MT_FUSE_OP || v->op != MT_OP_square || v->space != MT_FUSE_FULL)
    return false;
  if (!p->reduces || m->uses[i] != 1) return false;
  for (int k = i + 1; k < p->nnodes; k++)
    if (p->node[k].kind == MT_FUSE_SUM && p->node[k].arg[0] == i) return true;
  return false;
}

/* What reduction i reads. */
static int folded_node(const maker *m, int i) {
  const int arg = node_of(m, i)->arg[0];
  return is_folded(m, arg) ? node_of(m, arg)->arg[0] : arg;
}

static void take_up(maker *m, int i) {
  const mt_fuse_node *const v = node_of(m, i);
  const int from = register_of(m, folded_node(m, i), NUMBERS);
  mt_step *const s = add(m, MT_STEP_FOLD);
  s->op = v->kind == MT_FUSE_AMAX          ? MT_FOLD_MAX
          : v->kind == MT_FUSE_AMIN        ? MT_FOLD_MIN
          : folded_node(m, i) == v->arg[0] ? MT_FOLD_SUM
                                           : MT_FOLD_SQUARE;
  s->index = m->fold[i];
  s->arg[0] = from;
}

static void store(maker *m, int k) {
  const mt_fuse_program *const p = m->code->program;
  const int i = p->output[k], form = form_of(m, i);
  const bool full = !p->reduces || p->output_space[k] == MT_FUSE_FULL;
  const int from = full ? register_of(m, i, form) : slot_of(m, i, form);
  if (full && m->list->n > 0) { /* the row that makes it may write there itself */
    mt_step *const last = &m->list->step[m->list->n - 1];
    if (last->kind == MT_STEP_ROW && last->to == from) last->direct = (int8_t)k;
  }
  mt_step *const s = add(m, full ? MT_STEP_STORE : MT_SLOT_STORE);
  s->index = k;
  s->arg[0] = from;
  s->width = (uint8_t)width_of(m, form);
}

/* ---- sharing registers ---- */

static int register_arguments(const mt_step *s) {
  if (s->kind == MT_STEP_ROW) return s->nargs;
  return s->kind == MT_STEP_FOLD || s->kind == MT_STEP_STORE ? 1 : 0;
}

/* Registers whose values have been used for the last time serve again. */
static bool share_registers(maker *m) {
  const mt_steps *const l = m->list;
  const int n = m->nregisters;
  int *const last = malloc(((size_t)n + 1) * 3 * sizeof *last);
  if (!last) return false;
  int *const place = last + n + 1, *const spare = place + n + 1;
  int nspare = 0, used = 0;
  for (int r = 0; r < n; r++) last[r] = place[r] = -1;
  for (int i = 0; i < l->n; i++) {
    const mt_step *const s = &l->step[i];
    for (int a = 0; a < register_arguments(s); a++)
      if (s->arg[a] >= 0) last[s->arg[a]] = i;
  }
  for (int i = 0; i < l->n; i++) {
    mt_step *const s = &l->step[i];
    const bool makes =
        s->kind == MT_STEP_ROW || s->kind == MT_STEP_LOAD || s->kind == MT_STEP_SPREAD;
    const int to = s->to;
    if (makes) place[to] = nspare > 0 ? spare[--nspare] : used++;
    for (int a = 0; a < register_arguments(s); a++) {
      const int r = s->arg[a];
      if (r < 0) continue; /* a number's */
      s->arg[a] = place[r];
      if (last[r] == i) {
        spare[nspare++] = place[r];
        last[r] = -2; /* not twice, where it is two arguments */
      }
    }
    if (makes) s->to = place[to];
    if (makes && last[to] == -1) spare[nspare++] = place[to];
  }
  if (used > m->code->nregisters) m->code->nregisters = used;
  free(last);
  return true;
}

/* ---- lists ---- */

static void begin_list(maker *m, mt_steps *list) {
  m->list = list;
  m->nregisters = 0;
  for (int i = 0; i < m->code->program->nnodes; i++)
    m->reg[NUMBERS][i] = m->reg[CONDITIONS][i] = -1;
}

static void end_list(maker *m) {
  if (!m->failed && !share_registers(m)) m->failed = true;
}

static void forget_slots(maker *m) {
  for (int i = 0; i < m->code->program->nnodes; i++) {
    if (node_of(m, i)->kind == MT_FUSE_NUMBER) continue;
    m->slot[NUMBERS][i] = m->slot[CONDITIONS][i] = -1;
  }
}

static void make_whole(maker *m) {
  const mt_fuse_program *const p = m->code->program;
  begin_list(m, &m->code->whole);
  for (int i = 0; i < p->nnodes && !m->failed; i++) {
    if (node_of(m, i)->kind >= MT_FUSE_SUM) take_up(m, i);
    if (is_slot(m, i))
      make_slot(m, i);
    else if (!is_folded(m, i))
      make_register(m, i);
    for (int k = 0; k < p->nout; k++) {
      if (p->output[k] == i) store(m, k);
    }
  }
  end_list(m);
}

/* Nodes that blocks of this level need. */
static void mark_level(const maker *m, int level, bool *need) {
  const mt_fuse_program *const p = m->code->program;
  for (int i = 0; i < p->nnodes; i++) need[i] = false;
  for (int k = 0; k < p->nout && level == p->levels - 1; k++)
    need[p->output[k]] = p->output_space[k] == MT_FUSE_FULL;
  for (int i = p->nnodes - 1; i >= 0; i--) {
    const mt_fuse_node *const v = node_of(m, i);
    if (v->kind >= MT_FUSE_SUM && v->level == level + 1) need[folded_node(m, i)] = true;
    if (!need[i] || is_slot(m, i)) continue;
    for (int a = 0; a < v->nargs; a++) need[v->arg[a]] = true;
  }
}

static void make_level(maker *m, int level, bool *need) {
  const mt_fuse_program *const p = m->code->program;
  const bool last = level == p->levels - 1;
  begin_list(m, &m->code->slots[level]);
  for (int i = 0; i < p->nnodes && !m->failed; i++) {
    if (is_slot(m, i) && node_of(m, i)->level == level) make_slot(m, i);
  }
  for (int k = 0; k < p->nout && last; k++) {
    if (p->output_space[k] != MT_FUSE_FULL) store(m, k);
  }
  begin_list(m, &m->code->blocks[level]);
  mark_level(m, level, need);
  for (int i = 0; i < p->nnodes && !m->failed; i++) {
    const mt_fuse_node *const v = node_of(m, i);
    if (v->kind >= MT_FUSE_SUM && v->level == level + 1) take_up(m, i);
    if (need[i] && !is_slot(m, i)) make_register(m, i);
    for (int k = 0; k < p->nout && last; k++) {
      if (p->output[k] == i && p->output_space[k] == MT_FUSE_FULL) store(m, k);
    }
  }
  end_list(m);
}

static void make_levels(maker *m) {
  const mt_fuse_program *const p = m->code->program;
  bool *const need = malloc((size_t)p->nnodes + 1);
  m->code->slots = calloc((size_t)p->levels, sizeof(mt_steps));
  m->code->blocks = calloc((size_t)p->levels, sizeof(mt_steps));
  if (!need || !m->code->slots || !m->code->blocks) {
    m->failed = true;
  } else {
    m->code->levels = p->levels;
    forget_slots(m);
    for (int level = 0; level < p->levels && !m->failed; level++)
      make_level(m, level, need);
  }
  free(need);
}

/* Numbers' registers come behind the others. */
static void place_numbers(mt_fuse_code *c) {
  for (int k = -1; k < c->levels; k++) {
    mt_steps *const l = k < 0 ? &c->whole : &c->blocks[k];
    for (int i = 0; i < l->n; i++) {
      mt_step *const s = &l->step[i];
      for (int a = 0; a < register_arguments(s); a++)
        if (s->arg[a] < 0) s->arg[a] = c->nregisters - 2 - s->arg[a];
    }
  }
  c->nregisters += c->nfilled;
}

/* ---- whole programs ---- */

static void count_uses(maker *m) {
  const mt_fuse_program *const p = m->code->program;
  for (int i = 0; i < p->nnodes; i++) m->uses[i] = 0;
  for (int i = 0; i < p->nnodes; i++)
    for (int a = 0; a < p->node[i].nargs; a++) m->uses[p->node[i].arg[a]]++;
  for (int k = 0; k < p->nout; k++) m->uses[p->output[k]]++;
}

void mt_cpu_fuse_release(mt_fuse_code *c) {
  if (!c) return;
  for (int level = 0; level < c->levels; level++) {
    free(c->slots[level].step);
    free(c->blocks[level].step);
  }
  free(c->slots);
  free(c->blocks);
  free(c->whole.step);
  free(c->number);
  free(c->filled);
  free(c);
}

mt_fuse_code *mt_cpu_fuse_prepare(const mt_fuse_program *program, mt_dtype dtype) {
  mt_fuse_code *const c = calloc(1, sizeof *c);
  if (!c) return NULL;
  const size_t n = (size_t)program->nnodes + 1;
  int *const room = malloc(6 * n * sizeof *room);
  c->program = program;
  c->compute = dtype;
  c->width = (int)mt_cpu_size(dtype);
  c->number = malloc(n * sizeof *c->number);
  c->filled = malloc(n * sizeof *c->filled);
  maker m = {.code = c, .failed = !room || !c->number || !c->filled};
  if (!m.failed) {
    for (size_t i = 0; i < 5 * n; i++) room[i] = -1;
    m.slot[0] = room, m.slot[1] = room + n;
    m.reg[0] = room + 2 * n, m.reg[1] = room + 3 * n;
    m.fold = room + 4 * n, m.uses = room + 5 * n;
    count_uses(&m);
    for (int i = 0; i < program->nnodes; i++) {
      if (program->node[i].kind >= MT_FUSE_SUM) m.fold[i] = c->nfolds++;
    }
    make_whole(&m);
    if (program->reduces && !m.failed) make_levels(&m);
    if (!m.failed) place_numbers(c);
  }
  free(room);
  if (!m.failed) return c;
  mt_cpu_fuse_release(c);
  return NULL;
}
