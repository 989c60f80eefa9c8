/* Matching added tokens: leftmost, then longest, as the reference does. */
#include "model/token/st_added.h"

#include "model/token/st_utf8.h"

static int32_t child_of(const st_added *added, int32_t node, uint8_t byte) {
  if (node == 0) return added->root_child[byte];
  for (int32_t i = added->nodes[node].child; i; i = added->nodes[i].sibling)
    if (added->nodes[i].byte == byte) return i;
  return 0;
}

static strata_status add_node(st_added *added, int32_t parent, uint8_t byte, int32_t *out,
                              strata_error *err) {
  void *nodes = added->nodes;
  if (added->n_nodes >= INT32_MAX)
    ST_FAIL(err, LIMIT, "added_tokens: %zu bytes in all: fewer expected", added->n_nodes);
  ST_TRY(st_grow(&nodes, &added->nodes_capacity, added->n_nodes + 1, sizeof *added->nodes,
                 "added tokens", err));
  added->nodes = nodes;
  st_added_node *node = &added->nodes[added->n_nodes];
  *node = (st_added_node){.token = -1, .byte = byte};
  *out = (int32_t)added->n_nodes++;
  if (parent == 0) {
    added->root_child[byte] = *out;
  } else {
    node->sibling = added->nodes[parent].child;
    added->nodes[parent].child = *out;
  }
  return STRATA_OK;
}

strata_status st_added_put(st_added *added, const char *content, size_t n, st_added_token token,
                           strata_error *err) {
  void *tokens = added->tokens;
  int32_t node = 0;
  if (added->n_nodes == 0) {
    ST_TRY(add_node(added, 0, 0, &node, err));
    added->root_child[0] = 0;
  }
  for (size_t i = 0; i < n; i++) {
    int32_t child = child_of(added, node, (uint8_t)content[i]);
    if (!child) ST_TRY(add_node(added, node, (uint8_t)content[i], &child, err));
    node = child;
  }
  if (added->nodes[node].token >= 0) return STRATA_OK;
  ST_TRY(st_grow(&tokens, &added->tokens_capacity, added->n_tokens + 1, sizeof *added->tokens,
                 "added tokens", err));
  added->tokens = tokens;
  added->tokens[added->n_tokens] = token;
  added->nodes[node].token = (int32_t)added->n_tokens++;
  return STRATA_OK;
}

void st_added_release(st_added *added) {
  st_free(added->tokens);
  st_free(added->nodes);
  *added = (st_added){0};
}

st_added_match st_added_find(const st_added *added, const char *text, size_t from, size_t limit) {
  for (size_t begin = from; begin < limit; begin++) {
    st_added_match match = {NULL, begin, begin};
    int32_t node = 0;
    for (size_t i = begin; i < limit; i++) {
      node = child_of(added, node, (uint8_t)text[i]);
      if (!node) break;
      if (added->nodes[node].token < 0) continue;
      match.token = &added->tokens[added->nodes[node].token];
      match.end = i + 1;
    }
    if (match.token) return match;
  }
  return (st_added_match){NULL, limit, limit};
}

bool st_added_stands_alone(const char *text, size_t n, st_added_match match) {
  size_t length;
  if (match.begin > 0 && st_is_word(st_utf8_read_back(text, match.begin, &length))) return false;
  return match.end == n || !st_is_word(st_utf8_read(text + match.end, n - match.end, &length));
}

size_t st_added_left(const char *text, st_added_match match, size_t floor) {
  size_t begin = match.begin, length;
  while (match.token->lstrip && begin > floor &&
         st_is_white_space(st_utf8_read_back(text, begin, &length)))
    begin -= length;
  return begin;
}

size_t st_added_right(const char *text, size_t n, st_added_match match) {
  size_t end = match.end, length;
  while (match.token->rstrip && end < n &&
         st_is_white_space(st_utf8_read(text + end, n - end, &length)))
    end += length;
  return end;
}
