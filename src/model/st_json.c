/* The one call of jansson's parser for model files, and its errors in words. */
#include "model/st_json.h"

strata_status st_json_parse_object(const char *label, const char *text, size_t n_bytes,
                                   json_t **out, strata_error *err) {
  json_error_t error;
  json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
  *out = NULL;
  if (!root) {
    /* When an allocation fails jansson gives up without a message. */
    if (!error.text[0] || json_error_code(&error) == json_error_out_of_memory)
      return st_error_nomem(err, label, n_bytes);
    ST_FAIL(err, FORMAT, "%s: JSON line %d column %d: %s", label, error.line, error.column,
            error.text);
  }
  if (!json_is_object(root)) {
    json_decref(root);
    ST_FAIL(err, FORMAT, "%s: not a JSON object: an object expected", label);
  }
  *out = root;
  return STRATA_OK;
}
