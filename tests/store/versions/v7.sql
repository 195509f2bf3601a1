-- A session as version 7 of the schema wrote it: made by that version of the program.
PRAGMA application_id = 1095192148;
PRAGMA user_version = 7;
BEGIN TRANSACTION;
CREATE TABLE blob (
  hash TEXT PRIMARY KEY,
  size INTEGER NOT NULL,
  data BLOB NOT NULL
);
INSERT INTO "blob" VALUES('d7439bee24773bcbfa2d0a97947ee36227b10d1022b1a55847e928965bb6bfde',3,X'726177');
INSERT INTO "blob" VALUES('c40b5588790c60662f4cf27d106c6c0130172f76b3faf1df3ae09afbc54824e8',12,X'89504E470D0A1A0A30313233');
CREATE TABLE file_change (
  id INTEGER PRIMARY KEY,
  seq INTEGER NOT NULL,
  call_id TEXT NOT NULL,
  path TEXT NOT NULL,
  before_kind TEXT NOT NULL,
  before_data TEXT REFERENCES blob (hash),
  before_mode INTEGER NOT NULL DEFAULT 0,
  after_kind TEXT,
  after_data TEXT REFERENCES blob (hash),
  after_mode INTEGER,
  created_at REAL NOT NULL,
  rewind INTEGER REFERENCES rewind (id),
  seal TEXT NOT NULL DEFAULT ''
);
CREATE TABLE input_queue (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  body TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'delivered', 'done')),
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  source TEXT NOT NULL DEFAULT 'user',
  seal TEXT NOT NULL DEFAULT ''
);
INSERT INTO "input_queue" VALUES(1,'steering','waiting','queued',1.79537394947569680214e+09,1.79537394947569680214e+09,'user','-');
CREATE TABLE kv (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  seal TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
INSERT INTO "kv" VALUES('todos','["one","two"]','-');
CREATE TABLE message (
  seq INTEGER PRIMARY KEY,
  role TEXT NOT NULL,
  body TEXT NOT NULL,
  created_at REAL NOT NULL,
  hidden_by INTEGER REFERENCES message (seq),
  place INTEGER
);
INSERT INTO "message" VALUES(1,'user','{"v":1,"parts":[{"type":"text","text":"first prompt"}]}',1.79537394945062184336e+09,11,NULL);
INSERT INTO "message" VALUES(2,'assistant','{"v":1,"parts":[{"type":"text","text":"I look."},{"type":"tool_call","id":"a1","name":"bash","arguments":{"command":"ls"}},{"type":"tool_call","id":"b1","name":"read_file","arguments":{"path":"x.png"}}],"provider":"scripted","model":"m","stop_reason":"tool_use","usage":{"input_tokens":10,"output_tokens":5}}',1795373949.45263,11,NULL);
INSERT INTO "message" VALUES(3,'tool','{"v":1,"parts":[{"type":"text","text":"file.txt"}],"call_id":"a1","name":"bash","status":"ok"}',1.79537394945514822003e+09,11,NULL);
INSERT INTO "message" VALUES(4,'tool','{"v":1,"parts":[{"type":"text","text":"x.png"},{"type":"image","media_type":"image/png","blob":"c40b5588790c60662f4cf27d106c6c0130172f76b3faf1df3ae09afbc54824e8"}],"call_id":"b1","name":"read_file","status":"ok"}',1.7953739494579439163e+09,11,NULL);
INSERT INTO "message" VALUES(5,'assistant','{"v":1,"parts":[{"type":"text","text":"Done."}],"provider":"scripted","model":"m","stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5}}',1.79537394946009445191e+09,11,NULL);
INSERT INTO "message" VALUES(6,'user','{"v":1,"parts":[{"type":"text","text":"second prompt é☃"}]}',1.79537394946064639096e+09,NULL,NULL);
INSERT INTO "message" VALUES(7,'assistant','{"v":1,"parts":[{"type":"text","text":"I look."},{"type":"tool_call","id":"a2","name":"bash","arguments":{"command":"ls"}},{"type":"tool_call","id":"b2","name":"read_file","arguments":{"path":"x.png"}}],"provider":"scripted","model":"m","stop_reason":"tool_use","usage":{"input_tokens":10,"output_tokens":5}}',1795373949.46128,NULL,NULL);
INSERT INTO "message" VALUES(8,'tool','{"v":1,"parts":[{"type":"text","text":"file.txt"}],"call_id":"a2","name":"bash","status":"ok"}',1.79537394946253275876e+09,NULL,NULL);
INSERT INTO "message" VALUES(9,'tool','{"v":1,"parts":[{"type":"text","text":"x.png"},{"type":"image","media_type":"image/png","blob":"c40b5588790c60662f4cf27d106c6c0130172f76b3faf1df3ae09afbc54824e8"}],"call_id":"b2","name":"read_file","status":"ok"}',1.79537394946358346936e+09,NULL,NULL);
INSERT INTO "message" VALUES(10,'assistant','{"v":1,"parts":[{"type":"text","text":"Done."}],"provider":"scripted","model":"m","stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":5}}',1.79537394946431589129e+09,NULL,NULL);
INSERT INTO "message" VALUES(11,'summary','{"v":1,"parts":[{"type":"text","text":"what was said"}]}',1.79537394946595382687e+09,NULL,6);
INSERT INTO "message" VALUES(12,'user','{"v":1,"parts":[{"type":"text","text":"third"}]}',1.79537394947406411175e+09,NULL,NULL);
INSERT INTO "message" VALUES(13,'user','{"v":1,"parts":[{"type":"text","text":"fourth"}]}',1.79537394947721910473e+09,NULL,NULL);
INSERT INTO "message" VALUES(14,'assistant','{"v":1,"parts":[{"type":"text","text":"I look."},{"type":"tool_call","id":"c3","name":"bash","arguments":{"command":"sleep 9"}}],"provider":"scripted","model":"m","stop_reason":"tool_use","usage":{"input_tokens":10,"output_tokens":5}}',1.79537394947765755652e+09,NULL,NULL);
CREATE TABLE note (
  id INTEGER PRIMARY KEY,
  after_seq INTEGER NOT NULL,
  created_at REAL NOT NULL,
  kind TEXT NOT NULL,
  text TEXT NOT NULL
);
INSERT INTO "note" VALUES(1,12,1.7953739494748361111e+09,'partial','half an answer');
CREATE TABLE rewind (
  id INTEGER PRIMARY KEY,
  created_at REAL NOT NULL,
  newest_seq INTEGER NOT NULL,
  messages TEXT NOT NULL,
  text TEXT NOT NULL DEFAULT '',
  undone_at REAL
);
CREATE TABLE schedule (
  id TEXT PRIMARY KEY,
  cron_expression TEXT,
  scheduled_at TEXT,
  time_zone TEXT NOT NULL DEFAULT 'UTC',
  run TEXT NOT NULL,
  state TEXT NOT NULL,
  next_at REAL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  seal TEXT NOT NULL DEFAULT '',
  CHECK ((cron_expression IS NULL) <> (scheduled_at IS NULL))
) WITHOUT ROWID;
CREATE TABLE session (
  singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
  id TEXT NOT NULL,
  title TEXT NOT NULL,
  cwd TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  status TEXT NOT NULL,
  detail TEXT NOT NULL DEFAULT '',
  turns INTEGER NOT NULL DEFAULT 0,
  model TEXT NOT NULL DEFAULT '',
  parent_id TEXT,
  seal TEXT NOT NULL DEFAULT ''
);
INSERT INTO "session" VALUES(1,'old','first prompt','/work',1.7953739494489328861e+09,1.79537394947765755652e+09,'running','',4,'scripted/m',NULL,'-');
CREATE TABLE task (
  run_id TEXT PRIMARY KEY,
  tool TEXT NOT NULL,
  arguments TEXT NOT NULL,
  title TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 1,
  detail TEXT NOT NULL DEFAULT '',
  progress TEXT,
  summary TEXT NOT NULL DEFAULT '',
  log_path TEXT,
  result_path TEXT,
  error_kind TEXT,
  error_message TEXT,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  heartbeat_at REAL,
  cancel_requested_at REAL,
  task_id TEXT NOT NULL DEFAULT '',
  finished_at REAL,
  signals INTEGER NOT NULL DEFAULT 1,
  announced_at REAL,
  schedule_id TEXT NOT NULL DEFAULT '',
  pid INTEGER,
  pid_started TEXT NOT NULL DEFAULT '',
  is_repeatable INTEGER NOT NULL DEFAULT 0,
  seal TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE tool_run (
  call_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  status TEXT NOT NULL,
  message_seq INTEGER NOT NULL REFERENCES message (seq),
  started_at REAL,
  finished_at REAL,
  raw TEXT REFERENCES blob (hash),
  display TEXT NOT NULL DEFAULT '',
  result TEXT,
  result_seq INTEGER REFERENCES message (seq),
  line TEXT NOT NULL DEFAULT '',
  outcome TEXT NOT NULL DEFAULT ''
);
INSERT INTO "tool_run" VALUES('a1','bash','finished',2,1.79537394945449495318e+09,1.79537394945514822003e+09,'d7439bee24773bcbfa2d0a97947ee36227b10d1022b1a55847e928965bb6bfde','display',NULL,3,'','');
INSERT INTO "tool_run" VALUES('b1','read_file','finished',2,1.79537394945734620098e+09,1.7953739494579439163e+09,'d7439bee24773bcbfa2d0a97947ee36227b10d1022b1a55847e928965bb6bfde','display',NULL,4,'','');
INSERT INTO "tool_run" VALUES('a2','bash','finished',7,1.79537394946215844151e+09,1.79537394946253275876e+09,'d7439bee24773bcbfa2d0a97947ee36227b10d1022b1a55847e928965bb6bfde','display',NULL,8,'','');
INSERT INTO "tool_run" VALUES('b2','read_file','finished',7,1.79537394946318340296e+09,1.79537394946358346936e+09,'d7439bee24773bcbfa2d0a97947ee36227b10d1022b1a55847e928965bb6bfde','display',NULL,9,'','');
INSERT INTO "tool_run" VALUES('c3','bash','running',14,1.79537394947821187969e+09,NULL,NULL,'',NULL,NULL,'','');
CREATE TABLE usage (
  id INTEGER PRIMARY KEY,
  message_seq INTEGER REFERENCES message (seq),
  created_at REAL NOT NULL,
  kind TEXT NOT NULL,
  model TEXT NOT NULL,
  input_tokens INTEGER,
  output_tokens INTEGER,
  cache_read_tokens INTEGER,
  cache_write_tokens INTEGER,
  reasoning_tokens INTEGER,
  cost_usd REAL
);
INSERT INTO "usage" VALUES(1,2,1795373949.45263,'step','scripted/m',10,5,NULL,NULL,NULL,NULL);
INSERT INTO "usage" VALUES(2,5,1.79537394946009445191e+09,'step','scripted/m',10,5,NULL,NULL,NULL,NULL);
INSERT INTO "usage" VALUES(3,7,1795373949.46128,'step','scripted/m',10,5,NULL,NULL,NULL,NULL);
INSERT INTO "usage" VALUES(4,10,1.79537394946431589129e+09,'step','scripted/m',10,5,NULL,NULL,NULL,NULL);
INSERT INTO "usage" VALUES(5,11,1.79537394946595382687e+09,'compaction','scripted/m',3,4,NULL,NULL,NULL,NULL);
INSERT INTO "usage" VALUES(6,14,1.79537394947765755652e+09,'step','scripted/m',10,5,NULL,NULL,NULL,NULL);
COMMIT;
